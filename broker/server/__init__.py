"""What handler processes and the controller run: requests in, responses out."""
