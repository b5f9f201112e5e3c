"""Units -> ledger: one executor of sweeps, on one device or on a Dask cluster."""
