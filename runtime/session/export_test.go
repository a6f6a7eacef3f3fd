package session

import "os"

// CreateAt creates a session in dir whose journal is the existing file.
func CreateAt(dir, file string) (*Disk, error) {
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
