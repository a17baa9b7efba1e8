"""What every surface shows: one JSON object for each thing, made from what Store and Task return."""
