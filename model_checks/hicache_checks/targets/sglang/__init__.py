"""Published SGLang releases and forks, unmodified, on a machine without a GPU."""
