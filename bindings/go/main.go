// A queue of jobs over libterrace: jobs lie in the order of their numbers, and workers take them, each once.
package main

import (
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"terrace.example/terrace"
)

const jobs, workers = 200, 8

func key(number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte("job/"), number)
}

// push puts a job behind the others.
func push(db *terrace.DB, job []byte) error {
	return db.Transact(func(t *terrace.Transaction) error {
		last, err := t.Get([]byte("last"))
		if err != nil {
			return err
		}
		number := uint64(0)
		if len(last) == 8 {
			number = binary.BigEndian.Uint64(last) + 1
		}
		if err := t.Put([]byte("last"), binary.BigEndian.AppendUint64(nil, number)); err != nil {
			return err
		}
		return t.Put(key(number), job)
	})
}

// take takes the first job that nobody has; nil if there is none.
func take(db *terrace.DB) (job []byte, err error) {
	err = db.Transact(func(t *terrace.Transaction) error {
		var first []byte
		job = nil
		scan := func(k, _ []byte) bool {
			value, _ := t.Get(k)
			if len(value) == 0 {
				return true
			}
			first, job = append([]byte{}, k...), value
			return false
		}
		if err := db.Scan([]byte("job/"), scan); err != nil || first == nil {
			return err
		}
		return t.Put(first, nil)
	})
	return job, err
}

// deeper lets the stack grow, so that the runtime looks at every pointer in it.
func deeper(depth int) int {
	var room [1024]byte
	room[depth%len(room)] = 1
	if depth == 0 {
		return 0
	}
	return deeper(depth-1) + int(room[depth%len(room)])
}

// noBytes scans over an entry of no bytes, of a sorted file.
func noBytes(path string) error {
	db, err := terrace.Open(path, nil)
	if err != nil {
		return err
	}
	if err := db.Put(nil, nil); err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	if db, err = terrace.Open(path, nil); err != nil {
		return err
	}
	count := 0
	each := func(k, v []byte) bool {
		if deeper(1000) == 1000 && len(k) == 0 && len(v) == 0 && k != nil && v != nil {
			count++
		}
		return true
	}
	// With a stack of its own, which is small.
	ended := make(chan error)
	go func() { ended <- db.Scan(nil, each) }()
	if err := <-ended; err != nil {
		return err
	}
	if count != 1 {
		return fmt.Errorf("%d entries without bytes instead of 1", count)
	}
	return db.Close()
}

// misuse does what a program should not: every time there is an error, and nothing worse.
func misuse(path string) error {
	if _, err := terrace.Open(path+"\x00x", nil); err == nil {
		return fmt.Errorf("a path with a zero byte was taken")
	}
	db, err := terrace.Open(path, nil)
	if err != nil {
		return err
	}
	// A conflict is one also if the function has wrapped it.
	var kept *terrace.Transaction
	conflict := &terrace.Error{Code: 7, Message: "conflict"}
	attempts := 0
	err = db.Transact(func(t *terrace.Transaction) error {
		kept = t
		attempts++
		if attempts == 1 {
			return fmt.Errorf("first: %w", conflict)
		}
		return t.Put([]byte("k"), []byte("mine"))
	})
	if err != nil || attempts != 2 {
		return fmt.Errorf("a conflict ended in %v after %d attempts", err, attempts)
	}
	if _, err := kept.Get([]byte("k")); err == nil {
		return fmt.Errorf("a transaction was used behind its end")
	}
	// Calls beside a close, and behind it.
	var wait sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for {
				if err := db.Put([]byte("k"), []byte("v")); err != nil {
					return
				}
			}
		}()
	}
	if err := db.Close(); err != nil {
		return err
	}
	wait.Wait()
	if _, err := db.Get([]byte("k")); err == nil {
		return fmt.Errorf("a store was read behind its close")
	}
	return db.Close()
}

func main() {
	if len(os.Args) != 2 {
		log.Fatalf("usage: %s DIRECTORY", os.Args[0])
	}
	db, err := terrace.Open(os.Args[1], map[string]string{"memory_budget": "64MiB"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := terrace.Open(os.Args[1]+"x", map[string]string{"colour": "blue"}); err == nil {
		log.Fatal("an option that there is not was taken")
	}
	if err := db.PutWithTTL([]byte("late"), []byte("x"), -time.Second); err != nil {
		log.Fatal(err)
	}
	if late, err := db.Get([]byte("late")); err != nil || late != nil {
		log.Fatalf("a value whose time has passed is %q, %v", late, err)
	}
	if err := noBytes(os.Args[1] + "-no-bytes"); err != nil {
		log.Fatal(err)
	}
	if err := misuse(os.Args[1] + "-misuse"); err != nil {
		log.Fatal(err)
	}
	for number := 0; number < jobs; number++ {
		if err := push(db, []byte(fmt.Sprintf("job %d", number))); err != nil {
			log.Fatal(err)
		}
	}
	var wait sync.WaitGroup
	var lock sync.Mutex
	done := map[string]int{}
	for worker := 0; worker < workers; worker++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for {
				job, err := take(db)
				if err != nil {
					log.Fatal(err)
				}
				if job == nil {
					return
				}
				lock.Lock()
				done[string(job)]++
				lock.Unlock()
			}
		}()
	}
	wait.Wait()
	for job, times := range done {
		if times != 1 {
			log.Fatalf("%s was done %d times", job, times)
		}
	}
	if len(done) != jobs {
		log.Fatalf("%d jobs of %d were done", len(done), jobs)
	}
	fmt.Printf("libterrace %s: %d jobs, each done once by %d workers\n", terrace.Version(), jobs, workers)
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
}
