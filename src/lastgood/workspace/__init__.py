"""The files of a task: which are captured, how they are read, put back and compared."""
