"""Small records in transactions: the contract, and one package for each backend that keeps it."""
