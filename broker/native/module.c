/* The module `rotunda.broker.native.compiled`. A part is a file; it adds its functions and types to the module. */

#include "native.h"

/* The interface version: broker/native/__init__.py ignores a module built from other sources. */
#define INTERFACE 12

PyTypeObject *add_type(PyObject *module, PyType_Spec *spec)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddType(module, type) < 0)
        { Py_DECREF((PyObject *)type); type = NULL; }
    return type;
}

bool is_of(PyObject *object, PyTypeObject *type)
{
    if (PyObject_TypeCheck(object, type))
        return true;
    PyErr_SetString(PyExc_TypeError, "an object of another compiled type is needed");
    return false;
}

static int add_interface(PyObject *module)
{
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_interface}, {Py_mod_exec, add_record_walk},
    {Py_mod_exec, add_record_reader}, {Py_mod_exec, add_ring}, {Py_mod_exec, add_frame_receiver},
    {Py_mod_exec, add_response_sender}, {Py_mod_exec, add_cached_requests},
    {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "compiled", .m_doc = "Steps of a request in C.", .m_slots = slots};

PyMODINIT_FUNC PyInit_compiled(void)
{
    return PyModuleDef_Init(&definition);
}
