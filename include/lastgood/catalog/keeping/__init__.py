"""People's word on what stays and what ends: holds and retirements."""
