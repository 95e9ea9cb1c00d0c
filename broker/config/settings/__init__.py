"""The settings of the broker, a module for each group of keys. Declarations: `config.broker_config` joins them."""
