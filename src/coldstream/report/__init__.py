"""What runs found, for people: tables, plots and pages."""
