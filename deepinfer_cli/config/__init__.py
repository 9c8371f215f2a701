"""Settings: one table, five layers, one frozen RunConfig.

`settings` is the table (typed dataclasses); `layers` merges command line, environment, profile and file;
`yaml_source` reads files with line and column; `json_schema` and `reference` write what is generated.
"""
