package tool

import "testing"

func BenchmarkNewRegistry(b *testing.B) {
	for b.Loop() {
		registry(b)
	}
}
