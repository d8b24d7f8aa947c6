"""What calls and months cost, and what that does to the accounts of a tenant."""
