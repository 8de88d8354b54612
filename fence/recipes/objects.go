package recipes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/natscampaign/election"
	"github.com/natscampaign/election/fence"
)

// Objects is a bucket of an object store with conditional writes, such as S3. The first line of each object is the token of the term that
// wrote it.
type Objects struct {
	URL    string       // of the bucket
	Client *http.Client // signs the requests, where the store requires that
}

// Update replaces an object by the result of change, unless a newer term has written it. change gets the present data, nil if there is no
// object, and is called again if another client writes the object meanwhile. If the reply to a write is lost, and the client tries again by
// itself, change may next get its own result.
func (o Objects) Update(ctx context.Context, t election.Term, name string, change func(data []byte) ([]byte, error)) error {
	for {
		token, data, etag, err := o.get(ctx, name)
		if err != nil {
			return err
		}
		if token != "" {
			if err := newer(t, token); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		data, err = change(data)
		if err != nil {
			return err
		}
		stored, err := o.put(ctx, name, etag, t.Token()+"\n"+string(data))
		if stored || err != nil {
			return err
		}
	}
}

// newer returns why a term may not write over an object that a term with the given token has written.
func newer(t election.Term, token string) error {
	var guard fence.Guard
	if err := guard.Admit(token); err != nil {
		return err
	}
	return guard.Admit(t.Token())
}

// Get returns an object, nil if there is none.
func (o Objects) Get(ctx context.Context, name string) ([]byte, error) {
	_, data, _, err := o.get(ctx, name)
	return data, err
}

// get returns the parts of an object, and its ETag; the ETag is "" if there is no object.
func (o Objects) get(ctx context.Context, name string) (token string, data []byte, etag string, err error) {
	answer, err := o.do(ctx, http.MethodGet, name, nil, nil)
	if err != nil {
		return "", nil, "", err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNotFound:
		return "", nil, "", nil
	case http.StatusOK:
	default:
		return "", nil, "", fmt.Errorf("reading %s: %s", name, answer.Status)
	}
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", nil, "", err
	}
	line, data, found := bytes.Cut(content, []byte("\n"))
	etag = answer.Header.Get("ETag")
	switch {
	case !found:
		err = fmt.Errorf("reading %s: it does not begin with a token", name)
	case etag == "" || strings.HasPrefix(etag, "W/"):
		err = fmt.Errorf("reading %s: no write can depend on its ETag, %q", name, etag)
	}
	return string(line), data, etag, err
}

// put stores an object if the stored one has the given ETag or, for "", if there is none.
func (o Objects) put(ctx context.Context, name, etag, content string) (stored bool, err error) {
	condition := http.Header{"If-Match": {etag}}
	if etag == "" {
		condition = http.Header{"If-None-Match": {"*"}}
	}
	answer, err := o.do(ctx, http.MethodPut, name, condition, []byte(content))
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	switch status := answer.StatusCode; {
	case status == http.StatusOK, status == http.StatusCreated, status == http.StatusNoContent:
		return true, nil
	case status == http.StatusPreconditionFailed, status == http.StatusConflict: // another object is stored, or is being stored
		return false, nil
	case status == http.StatusNotFound && etag != "": // the object was deleted; without an ETag the bucket does not exist
		return false, nil
	}
	return false, fmt.Errorf("writing %s: %s", name, answer.Status)
}

func (o Objects) do(ctx context.Context, method, name string, header http.Header, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, o.URL+"/"+name, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		r.Header = header
	}
	return o.Client.Do(r)
}
