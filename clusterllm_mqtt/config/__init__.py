"""Settings become values: read with their places, checked, turned into what each part takes."""
