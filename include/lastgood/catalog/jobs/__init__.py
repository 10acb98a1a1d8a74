"""What training jobs did: stages, generations, attempts, checkpoints and their copies, readers."""
