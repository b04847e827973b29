"""Projects of Spark Declarative Pipelines: new ones, their runs, their checkpoints and resets."""
