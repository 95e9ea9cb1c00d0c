"""Who a client is and what it may do. Used by every process that meets clients; knows no socket, no ring and no log."""
