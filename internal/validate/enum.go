package validate

import (
	"fmt"
	"reflect"
	"slices"
)

// Enum has the names of the values of an enumeration, for people, logs and JSON: by value. An empty name belongs to no value.
type Enum[T ~int | ~uint] []string

// Text returns the name of a value, or a text such as State(7) for a value without a name.
func (n Enum[T]) Text(v T) string {
	if i := int(v); i >= 0 && i < len(n) && n[i] != "" {
		return n[i]
	}
	return fmt.Sprintf("%s(%d)", reflect.TypeFor[T]().Name(), v)
}

// Parse sets v to the value that has the name. If there is none, the error lists all names.
func (n Enum[T]) Parse(name []byte, v *T) error {
	for i, known := range n {
		if known != "" && known == string(name) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("%q is no %s: use one of %q", name, reflect.TypeFor[T]().Name(), slices.DeleteFunc(slices.Clone(n), func(known string) bool { return known == "" }))
}
