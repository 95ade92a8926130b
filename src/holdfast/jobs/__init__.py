"""Jobs: phases of work by a worker and a supervisor, with a person behind them."""
