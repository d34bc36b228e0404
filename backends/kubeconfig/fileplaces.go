package kubeconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// place is an element of the option Paths.
type place struct {
	path    string   // absolute; of a pattern, the folder in which it begins
	pattern []string // the components of the pattern below path
	folder  bool     // written with a separator at its end
}

func newPlace(path string) (place, error) {
	if path == "" {
		return place{}, errors.New("a path is empty")
	}
	folder := os.IsPathSeparator(path[len(path)-1])
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		home, err := os.UserHomeDir()
		if err != nil {
			return place{}, fmt.Errorf("resolve %q: %w", path, err)
		}
		path = home + rest
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return place{}, fmt.Errorf("resolve %q: %w", path, err)
	}
	if _, err := filepath.Match(absolute, ""); err != nil {
		return place{}, fmt.Errorf("pattern %q: %w", path, err)
	}
	p := place{path: absolute, folder: folder}
	for base, name := absolute, ""; hasMeta(base); {
		base, name = filepath.Dir(base), filepath.Base(base)
		p.path, p.pattern = base, append([]string{name}, p.pattern...)
	}
	return p, nil
}

func hasMeta(path string) bool { return strings.ContainsAny(path, `*?[`) }

// foundFile is a file that may be a kubeconfig.
type foundFile struct {
	path   string
	name   string // what {{file}} stands for
	listed bool   // nobody named it: it was found in a folder, or by a pattern
}

// search is one look at all places.
type search struct {
	points  points
	found   []foundFile
	unknown []unreadablePlace
}

// unreadablePlace is a folder that is not there or cannot be read, so what is in it is not known.
type unreadablePlace struct {
	path    string
	message string
}

// holds reports whether a file lies in the place.
func (u unreadablePlace) holds(path string) bool {
	rest, ok := strings.CutPrefix(path, u.path)
	return ok && (rest == "" || os.IsPathSeparator(rest[0]))
}

// look finds the files of a place. wasFolder says that there was a folder at its path earlier.
func (s *search) look(p place, wasFolder bool) (isFolder bool) {
	if p.pattern != nil {
		s.match(p.path, p.path, p.pattern)
		return true
	}
	physical := s.points.lead(p.path)
	info, err := os.Stat(p.path)
	switch {
	case err == nil && info.IsDir():
		s.points.add(physical, everything)
		s.match(p.path, p.path, []string{"*"})
		return true
	case err == nil && !p.folder:
		s.found = append(s.found, foundFile{path: p.path, name: filepath.Base(p.path)})
		return false
	case err == nil:
		s.fail(p.path, errors.New("not a directory"))
	case wasFolder || p.folder || !errors.Is(err, fs.ErrNotExist):
		s.fail(p.path, err)
	default:
		// A file that is gone is gone, but if its folder is gone as well, nothing is known.
		if _, err := os.Stat(filepath.Dir(p.path)); err != nil {
			s.fail(filepath.Dir(p.path), err)
		}
	}
	return wasFolder
}

// match finds the files below folder whose path matches the pattern. base is where the pattern begins.
func (s *search) match(base, folder string, pattern []string) {
	s.points.add(s.points.lead(folder), everything)
	entries, err := os.ReadDir(folder)
	if err != nil {
		s.fail(folder, err)
		return
	}
	for _, entry := range entries {
		name := entry.Name()
		if ok, _ := filepath.Match(pattern[0], name); !ok || leftBehind(name) {
			continue
		}
		path := filepath.Join(folder, name)
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			s.points.lead(path) // a link that leads nowhere, yet
			continue
		}
		isFolder := err == nil && info.IsDir()
		switch {
		case len(pattern) > 1 && isFolder:
			s.match(base, path, pattern[1:])
		case len(pattern) == 1 && !isFolder && (err != nil || info.Mode().IsRegular()):
			relative, err := filepath.Rel(base, path)
			if err != nil {
				relative = name
			}
			s.found = append(s.found, foundFile{path: path, name: filepath.ToSlash(relative), listed: true})
		}
	}
}

func (s *search) fail(path string, err error) {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		err = pathError.Err // without the path, which is said already
	}
	s.unknown = append(s.unknown, unreadablePlace{path: path, message: fmt.Sprintf("read folder %s: %v", path, err)})
}

// leftBehind reports whether a file's name is one that editors, and volumes of Kubernetes, give to what is not meant to be seen.
func leftBehind(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || name == "4913" { // vim's trial whether it may write
		return true
	}
	return slices.ContainsFunc([]string{"~", ".swp", ".swx", ".tmp", ".bak", ".orig"}, func(s string) bool {
		return strings.HasSuffix(name, s)
	})
}
