"""Finding, describing and loading models; one folder or file per family."""
