"""lastgood keeps the last good checkpoint of every training job recoverable."""
