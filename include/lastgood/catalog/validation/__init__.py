"""What reading copies again showed: receipts, recoveries, drills."""
