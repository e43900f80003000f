"""Results of runs for readers: tables, plots and pages."""
