"""This machine: processes, private folders, where a store lies."""
