"""Files of this machine: read as they were, held while they are sent, written so that they last."""
