"""Small statistics that every measurement here shares."""
