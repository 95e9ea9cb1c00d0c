"""The status page: shared memory, shown to people in a browser and to Prometheus. It only reads.

Layers, from the bottom: `http`, connections and who may ask; `sources`; `facts`, readings and what follows from them;
`watch`, a reading a second for all who look; `reports`; pages and views; `routes` and `app`; `server`.
"""
