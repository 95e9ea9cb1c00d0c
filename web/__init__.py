"""The status page: shows shared memory to browsers and Prometheus. Read-only.

Runs in the web process. Layers, from the bottom: `http`, connections and access control; `sources`; `facts`, readings
and values derived from them; `watch`, one reading per second shared by all viewers; `reports`; pages and views;
`routes` and `app`; `server`.
"""
