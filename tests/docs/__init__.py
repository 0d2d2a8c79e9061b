"""The documentation says what is so: its snippets run, its tables match the code, its links lead somewhere."""
