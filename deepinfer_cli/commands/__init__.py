"""One module per verb; see deepinfer_cli.app for what a module has to offer."""
