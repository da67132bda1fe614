"""Systems under test that are not ours."""
