"""Points of a study: scenario, key and outcome; with the packages below, all that decides a kept result."""
