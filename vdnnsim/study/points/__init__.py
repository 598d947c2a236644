"""Points of a study: their scenario, their key and their outcome. All that decides a kept result is here or below."""
