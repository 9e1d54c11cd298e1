// Package terrace is a thin layer over libterrace by cgo: what a program in Go needs first, and how the rest
// of terrace.h is called.
//
// CGO_CFLAGS and CGO_LDFLAGS say where the library is, as `cargo xtask c-library` installs it:
//
//	CGO_CFLAGS=-I/usr/local/include CGO_LDFLAGS="-L/usr/local/lib -lterrace" go run . DIRECTORY
//
// A program of your own finds this module beside it:
//
//	go mod edit -require=terrace.example@v0.0.0 -replace=terrace.example=/path/to/bindings/go
//
// If the program does not find the library when it starts, run ldconfig, or name its directory in LD_LIBRARY_PATH.
package terrace

/*
#include <stdlib.h>
#include <terrace.h>
*/
import "C"

import (
	"errors"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

// Error is what the library could not do. Its code is one of the TERRACE_ codes of terrace.h.
type Error struct {
	Code    int
	Message string
}

func (e *Error) Error() string { return e.Message }

// IsConflict says whether a transaction is to be run again; err may wrap the error of the library.
func IsConflict(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == C.TERRACE_CONFLICT
}

// failure takes an error of the library over; nil for success.
func failure(e *C.terrace_error) error {
	if e == nil {
		return nil
	}
	defer C.terrace_error_free(e)
	return &Error{int(C.terrace_error_code(e)), C.GoString(C.terrace_error_message(e))}
}

// bytes are those of a slice, which stay where they are during one call.
func bytes(b []byte) (*C.uint8_t, C.size_t) {
	if len(b) == 0 {
		return nil, 0
	}
	return (*C.uint8_t)(unsafe.Pointer(&b[0])), C.size_t(len(b))
}

// taken copies a value into Go's memory and frees it; nil for an absent key, empty for a value of no bytes.
func taken(value *C.terrace_value) []byte {
	defer C.terrace_value_free(value)
	if value.data == nil {
		return nil
	}
	return append([]byte{}, unsafe.Slice((*byte)(unsafe.Pointer(value.data)), int(value.len))...)
}

// DB is an open store. Any number of goroutines may use it. Its handle is freed when nothing refers to it any more, so
// that a call beside or behind Close is an error and nothing worse.
type DB struct{ handle *C.terrace_db }

// Open opens the store in a directory, which is created. Options are by name, see docs/c.md.
func Open(path string, options map[string]string) (*DB, error) {
	for name, value := range options {
		if err := checkText(name, value); err != nil {
			return nil, err
		}
	}
	if err := checkText(path); err != nil {
		return nil, err
	}
	o := C.terrace_options_new()
	defer C.terrace_options_free(o)
	for name, value := range options {
		n, v := C.CString(name), C.CString(value)
		err := failure(C.terrace_options_set(o, n, v))
		C.free(unsafe.Pointer(n))
		C.free(unsafe.Pointer(v))
		if err != nil {
			return nil, err
		}
	}
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	var handle *C.terrace_db
	if err := failure(C.terrace_open(p, o, &handle)); err != nil {
		return nil, err
	}
	db := &DB{handle}
	runtime.SetFinalizer(db, func(db *DB) { C.terrace_db_free(db.handle) })
	return db, nil
}

// checkText refuses text that C would cut.
func checkText(texts ...string) error {
	for _, text := range texts {
		if strings.IndexByte(text, 0) >= 0 {
			return &Error{C.TERRACE_INVALID_ARGUMENT, "a path, or an option, has a zero byte"}
		}
	}
	return nil
}

// Close closes the store. Every later call fails; closing again gives the same. Without it the store is closed some time
// after nothing refers to the DB any more, and an error of that is lost.
func (db *DB) Close() error {
	defer runtime.KeepAlive(db)
	return failure(C.terrace_close(db.handle))
}

// Get gives the value of a key; nil if it is absent.
func (db *DB) Get(key []byte) ([]byte, error) {
	defer runtime.KeepAlive(db)
	k, n := bytes(key)
	var value C.terrace_value
	err := failure(C.terrace_get(db.handle, nil, nil, k, n, &value))
	return taken(&value), err
}

// Put sets a key to a value.
func (db *DB) Put(key, value []byte) error {
	defer runtime.KeepAlive(db)
	k, kn := bytes(key)
	v, vn := bytes(value)
	return failure(C.terrace_put(db.handle, nil, k, kn, v, vn))
}

// PutWithTTL sets a key to a value until a duration has passed, in whole milliseconds, rounded up. With one that is not positive, as of a deadline that has
// passed, the key is absent at once.
func (db *DB) PutWithTTL(key, value []byte, ttl time.Duration) error {
	defer runtime.KeepAlive(db)
	k, kn := bytes(key)
	v, vn := bytes(value)
	ms := ttl.Milliseconds()
	if ttl > 0 && ttl%time.Millisecond != 0 {
		ms++
	}
	if ms < 0 {
		// As a number without a sign it would be for ever.
		ms = 0
	}
	return failure(C.terrace_put_with_ttl(db.handle, nil, k, kn, v, vn, C.uint64_t(ms)))
}

// Delete removes a key.
func (db *DB) Delete(key []byte) error {
	defer runtime.KeepAlive(db)
	k, n := bytes(key)
	return failure(C.terrace_delete(db.handle, nil, k, n))
}

// Scan calls each for every entry whose key starts with the prefix, in order, until it returns false. The
// slices are good only during the call.
func (db *DB) Scan(prefix []byte, each func(key, value []byte) bool) error {
	defer runtime.KeepAlive(db)
	o := C.terrace_read_options_new()
	defer C.terrace_read_options_free(o)
	p, n := bytes(prefix)
	if err := failure(C.terrace_read_options_set_prefix(o, p, n)); err != nil {
		return err
	}
	var iter *C.terrace_iter
	if err := failure(C.terrace_iter_new(db.handle, nil, o, &iter)); err != nil {
		return err
	}
	defer C.terrace_iter_free(iter)
	part := func(data *C.uint8_t, len C.size_t) []byte {
		if len == 0 {
			return []byte{}
		}
		return unsafe.Slice((*byte)(unsafe.Pointer(data)), int(len))
	}
	err := failure(C.terrace_iter_seek_to_first(iter))
	for err == nil && bool(C.terrace_iter_valid(iter)) {
		var kn, vn C.size_t
		k := C.terrace_iter_key(iter, &kn)
		v := C.terrace_iter_value(iter, &vn)
		if !each(part(k, kn), part(v, vn)) {
			return nil
		}
		err = failure(C.terrace_iter_next(iter))
	}
	return err
}

// Transaction reads at one moment and writes whole or not at all. One goroutine at a time may use it, until the function
// that Transact gave it to returns; later calls fail.
type Transaction struct{ handle *C.terrace_transaction }

// Get gives the value of a key as the transaction sees it.
func (t *Transaction) Get(key []byte) ([]byte, error) {
	k, n := bytes(key)
	var value C.terrace_value
	err := failure(C.terrace_transaction_get(t.handle, nil, k, n, &value))
	return taken(&value), err
}

// Put sets a key to a value.
func (t *Transaction) Put(key, value []byte) error {
	k, kn := bytes(key)
	v, vn := bytes(value)
	return failure(C.terrace_transaction_put(t.handle, nil, k, kn, v, vn))
}

// Transact calls work with a transaction and commits it, again as long as a key that it read has been written
// by another.
func (db *DB) Transact(work func(*Transaction) error) error {
	for {
		err := db.attempt(work)
		if err == nil || !IsConflict(err) {
			return err
		}
	}
}

// attempt calls work with a transaction, commits it and frees it, also if work panics.
func (db *DB) attempt(work func(*Transaction) error) error {
	defer runtime.KeepAlive(db)
	var handle *C.terrace_transaction
	if err := failure(C.terrace_transaction_begin(db.handle, &handle)); err != nil {
		return err
	}
	defer C.terrace_transaction_free(handle)
	transaction := &Transaction{handle}
	defer func() { transaction.handle = nil }()
	if err := work(transaction); err != nil {
		return err
	}
	return failure(C.terrace_transaction_commit(handle, C.TERRACE_SYNC_DEFAULT))
}

// Version is that of the library.
func Version() string { return C.GoString(C.terrace_version()) }
