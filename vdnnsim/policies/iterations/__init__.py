"""How iterations are scheduled: what several policies share, and what one policy has much of."""
