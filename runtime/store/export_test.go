package store

import "os"

// CreateAt makes a session in dir whose journal is the existing file.
func CreateAt(dir, file string) (*Session, error) {
	s, err := Create(dir, Options{})
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	_ = s.file.Close()
	s.file = f
	return s, nil
}
