"""How a network is trained: engine, optimisers, schedules, offline training."""
