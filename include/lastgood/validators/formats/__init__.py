"""The formats of files of checkpoints, each a plug-in of the group `lastgood.formats`."""
