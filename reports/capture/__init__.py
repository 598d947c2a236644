"""What a capture says of many models, beside real runs of them: the pages, and the programs that write them."""
