"""What puts load on a gateway, and what stands behind it. Each client is a process; it is told what to do by one JSON line."""
