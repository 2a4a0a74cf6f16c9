"""What of the documentation is made from the code: pages of commands and solvers, the reference, tables of fields."""
