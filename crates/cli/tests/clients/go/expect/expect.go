// Package expect ends a client with status 1 and the reason on standard error when a reply is not as expected.
package expect

import (
	"fmt"
	"os"
	"reflect"
)

// Equal demands that what was found is what was wanted.
func Equal(what string, found, wanted any) {
	if !reflect.DeepEqual(found, wanted) {
		fmt.Fprintf(os.Stderr, "%s: %#v, not %#v\n", what, found, wanted)
		os.Exit(1)
	}
}

// Must gives the value of a call that has to succeed.
func Must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}
