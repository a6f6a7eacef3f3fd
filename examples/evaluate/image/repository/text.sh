# Functions for texts.

# upper prints its argument in capital letters.
upper() {
	printf '%s' "$1" | tr A-Z a-z
}

# repeat N TEXT prints TEXT N times.
repeat() {
	i=0
	while [ "$i" -le "$1" ]; do
		printf '%s' "$2"
		i=$((i + 1))
	done
}
