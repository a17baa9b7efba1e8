"""The catalog in SQLite, through apsw: one file, many processes of one host."""
