// Forwards requests to an object store on this machine, each after a delay, and counts them by method:
// slow_s3 LISTEN TO DELAY. A GET of /_count returns the counts and sets them to 0.
package main

import (
	"encoding/json"
	"net/http"
	"net/http/httputil"
	"os"
	"sync"
	"time"
)

func main() {
	listen, to := os.Args[1], os.Args[2]
	delay, err := time.ParseDuration(os.Args[3])
	if err != nil {
		panic(err)
	}
	var lock sync.Mutex
	counts := map[string]int{}
	proxy := &httputil.ReverseProxy{
		// The Host header stays: the signature is over it.
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", to, r.In.Host },
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
	}
	http.HandleFunc("/_count", func(w http.ResponseWriter, _ *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		json.NewEncoder(w).Encode(counts)
		counts = map[string]int{}
	})
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		counts[r.Method]++
		lock.Unlock()
		time.Sleep(delay)
		proxy.ServeHTTP(w, r)
	})
	panic(http.ListenAndServe(listen, nil))
}
