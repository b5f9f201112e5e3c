"""Units measured by a supervised sweep, on one device or on several."""
