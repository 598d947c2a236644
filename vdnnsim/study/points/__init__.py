"""One point of a study: its scenario, its key, what came of it. Whatever decides a kept result is here or below."""
