"""People's word on what stays and what ends: holds, their release, and retirement."""
