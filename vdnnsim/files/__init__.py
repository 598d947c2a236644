"""Files of users: read strictly, with errors that name the place; written whole or not at all."""
