"""What a processor counts of clients, connections and requests, and the rows that it sends to the recorder."""
