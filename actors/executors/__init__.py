"""The driver's view: the ledger of executors, targets, kills, rolls, status."""
